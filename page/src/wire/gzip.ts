/** Compressed content of files, as text. */

export async function decompress(packed: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([packed.slice()]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export function decodeBase64(text: string): Uint8Array {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let position = 0; position < letters.length; position++) bytes[position] = letters.charCodeAt(position);
  return bytes;
}
