/** Colours: sequential scales for weights, a diverging one for differences, and one colour for each kind of head.
 *
 * All scales order by lightness alone, so they can be read without colour vision; the kinds use the palette of Okabe
 * and Ito (2008).
 */

export type Theme = "light" | "dark";
export type Scale = "linear" | "sqrt" | "log";
type Rgb = [number, number, number];

export const SCALES: Scale[] = ["linear", "sqrt", "log"];
export const LOG_FLOOR = 1.5e-5; // the weight of byte 1 of a tile; smaller weights have the colour of 0

const SEQUENTIAL: Record<Theme, Rgb[]> = {
  light: [
    [255, 255, 255],
    [222, 234, 246],
    [158, 197, 228],
    [80, 146, 201],
    [24, 92, 160],
    [8, 40, 94],
  ],
  dark: [
    [20, 24, 33],
    [27, 51, 86],
    [34, 90, 143],
    [67, 142, 196],
    [143, 200, 233],
    [244, 251, 255],
  ],
};
const NEGATIVE: Rgb = [196, 92, 0];
const POSITIVE: Rgb = [92, 52, 160];
const NEGATIVE_DARK: Rgb = [255, 160, 70];
const POSITIVE_DARK: Rgb = [176, 150, 255];

/** The kinds of heads, in the order of their legend. */
export const KINDS = ["previous", "induction", "duplicate", "own", "local", "positional", "separator", "syntactic", "semantic", "first", "uniform", "mixed"];

/** Colours of the kinds, with a contrast of at least 3 to the panels of their theme. */
export const KIND_COLOURS: Record<Theme, Record<string, string>> = {
  light: {
    previous: "#0072b2",
    induction: "#d55e00",
    duplicate: "#c05c97",
    own: "#b07800",
    local: "#2f93cf",
    positional: "#2a7fff",
    separator: "#6b4ba1",
    syntactic: "#008a64",
    semantic: "#5f8f00",
    first: "#5d6470",
    uniform: "#99814f",
    mixed: "#878c97",
  },
  dark: {
    previous: "#2a8fd0",
    induction: "#e87522",
    duplicate: "#d98bb8",
    own: "#e69f00",
    local: "#56b4e9",
    positional: "#5a9bff",
    separator: "#9a7fd0",
    syntactic: "#19b387",
    semantic: "#8fc31f",
    first: "#9aa0aa",
    uniform: "#c3b091",
    mixed: "#7a808c",
  },
};

function interpolate(stops: Rgb[], fraction: number): Rgb {
  const position = Math.min(Math.max(fraction, 0), 1) * (stops.length - 1);
  const index = Math.min(Math.floor(position), stops.length - 2);
  const share = position - index;
  return stops[index].map((low, channel) =>
    Math.round(low + (stops[index + 1][channel] - low) * share),
  ) as Rgb;
}

/** Return where a weight lies on a colour scale that ends at `most`, from 0 to 1. */
export function shade(weight: number, scale: Scale, most: number): number {
  if (weight <= 0 || most <= 0) return 0;
  const share = Math.min(weight / most, 1);
  if (scale === "sqrt") return Math.sqrt(share);
  if (scale === "linear") return share;
  return weight <= LOG_FLOOR ? 0 : Math.log(weight / LOG_FLOOR) / Math.log(Math.max(most, 10 * LOG_FLOOR) / LOG_FLOOR);
}

/** Return the weight at a fraction of the colour scale: the inverse of `shade`. */
export function unshade(fraction: number, scale: Scale, most: number): number {
  if (scale === "sqrt") return most * fraction * fraction;
  if (scale === "linear") return most * fraction;
  return fraction === 0 ? 0 : LOG_FLOOR * (Math.max(most, 10 * LOG_FLOOR) / LOG_FLOOR) ** fraction;
}

export function weightColour(weight: number, scale: Scale, most: number, theme: Theme): Rgb {
  return interpolate(SEQUENTIAL[theme], shade(weight, scale, most));
}

export function differenceColour(difference: number, scale: Scale, most: number, theme: Theme): Rgb {
  const ends = theme === "light" ? [NEGATIVE, POSITIVE] : [NEGATIVE_DARK, POSITIVE_DARK];
  return interpolate([SEQUENTIAL[theme][0], ends[difference < 0 ? 0 : 1]], shade(Math.abs(difference), scale, most));
}

/** Return the weight that a byte of a tile stands for. */
export function decodeByte(byte: number, isDifference: boolean): number {
  if (!isDifference) return (byte / 255) ** 2;
  const root = (byte - 128) / 127;
  return Math.sign(root) * root * root;
}

/** Build the 256 colours of a tile's bytes, as 32-bit pixels. */
export function buildPixels(isDifference: boolean, scale: Scale, most: number, theme: Theme): Uint32Array {
  const pixels = new Uint32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    const weight = decodeByte(byte, isDifference);
    const [red, green, blue] = isDifference
      ? differenceColour(weight, scale, most, theme)
      : weightColour(weight, scale, most, theme);
    pixels[byte] = (255 << 24) | (blue << 16) | (green << 8) | red; // little-endian RGBA
  }
  return pixels;
}

export function cssColour([red, green, blue]: Rgb): string {
  return `rgb(${red}, ${green}, ${blue})`;
}

/** Return black or white, whichever has the larger contrast on a colour (WCAG 2); it is never below 4.5. */
export function inkOn(colour: Rgb): string {
  const [red, green, blue] = colour.map((value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return red * 0.2126 + green * 0.7152 + blue * 0.0722 > 0.179 ? "#000000" : "#ffffff";
}

/** Return the colour of a weight over an image: one hue, more opaque for larger weights. */
export function overlayColour(opacity: number): string {
  return `rgba(255, 122, 0, ${opacity.toFixed(3)})`;
}
