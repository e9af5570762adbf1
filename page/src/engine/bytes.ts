/** The letters of byte-level tokenizers: each byte is written as one letter (Radford et al. 2019). */

const LETTERS: string[] = [];
const BYTES = new Map<string, number>();

const isPrintable = (byte: number) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
let next = 256;
for (let byte = 0; byte < 256; byte++) {
  LETTERS.push(String.fromCodePoint(isPrintable(byte) ? byte : next++));
  BYTES.set(LETTERS[byte], byte);
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const strictDecoder = new TextDecoder("utf-8", { ignoreBOM: true, fatal: true });

export function encodeUtf8(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Return the text of bytes; those that are not valid UTF-8 become U+FFFD. */
export function decodeUtf8(bytes: ArrayLike<number>): string {
  return decoder.decode(Uint8Array.from(bytes));
}

/** Return the text of bytes, or null if they are not valid UTF-8. */
export function decodeStrictly(bytes: ArrayLike<number>): string | null {
  try {
    return strictDecoder.decode(Uint8Array.from(bytes));
  } catch {
    return null;
  }
}

export function byteToLetter(byte: number): string {
  return LETTERS[byte];
}

/** Return the bytes that the letters of a token stand for; the token's own bytes if it has other letters. */
export function tokenToBytes(token: string): Uint8Array {
  const bytes = Array.from(token, (letter) => BYTES.get(letter));
  return bytes.includes(undefined) ? encodeUtf8(token) : Uint8Array.from(bytes as number[]);
}
