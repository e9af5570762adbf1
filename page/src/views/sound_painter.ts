/** Draw the spectrogram of the audio, with weights, hidden stretches, the selected stretch and the playhead over it. */

import { overlayColour, type Theme } from "../colour";
import type { Sound } from "../protocol";
import type { Stretch } from "../cuts";

const SILENCE: Record<Theme, [number, number, number]> = { light: [255, 255, 255], dark: [16, 20, 28] };
const LOUD: Record<Theme, [number, number, number]> = { light: [30, 52, 78], dark: [170, 205, 240] };
const MAX_CANVAS = 16_000; // pixels; browsers draw nothing on a larger one
const CURVE_HEIGHT = 0.45; // of the canvas

/** Build the picture of a spectrogram; the lowest band is at the bottom. */
export function buildSpectrogram(bytes: Uint8Array, { bands, frames }: Sound, theme: Theme): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = frames;
  canvas.height = bands;
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(frames, bands);
  const [silence, loud] = [SILENCE[theme], LOUD[theme]];
  for (let band = 0; band < bands; band++)
    for (let frame = 0; frame < frames; frame++) {
      const share = (bytes[band * frames + frame] / 255) ** 1.5;
      const pixel = 4 * ((bands - 1 - band) * frames + frame);
      for (let channel = 0; channel < 3; channel++) image.data[pixel + channel] = silence[channel] + share * (loud[channel] - silence[channel]);
      image.data[pixel + 3] = 255;
    }
  context.putImageData(image, 0, 0);
  return canvas;
}

export interface SoundPicture {
  sound: Sound;
  theme: Theme;
  spectrogram: HTMLCanvasElement | null;
  weights: Float32Array | null; // of one word, by position
  hidden: Stretch[];
  selected: [number, number] | null; // positions
  time: number; // of the playhead, in seconds
}

export function paintSound(canvas: HTMLCanvasElement, picture: SoundPicture): void {
  const { sound, theme, weights } = picture;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const ratio = Math.min(devicePixelRatio || 1, MAX_CANVAS / width);
  if (!width || !height) return;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d")!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const scale = width / sound.seconds;
  const left = (position: number) => (position / sound.positions_per_second) * scale;
  context.fillStyle = `rgb(${SILENCE[theme].join(",")})`;
  context.fillRect(0, 0, width, height);
  if (picture.spectrogram) context.drawImage(picture.spectrogram, 0, 0, width, height);
  const mark = theme === "light" ? "#d1462f" : "#ffb35c";
  if (weights?.length) {
    const most = weights.reduce((largest, weight) => Math.max(largest, weight), 0) || 1;
    context.beginPath();
    context.moveTo(0, height);
    weights.forEach((weight, position) => {
      const share = Math.sqrt(weight / most);
      context.fillStyle = overlayColour(0.55 * share);
      context.fillRect(left(position), 0, left(1) + 0.5, height);
      context.lineTo(left(position + 0.5), height - 1 - CURVE_HEIGHT * height * (weight / most));
    });
    context.lineWidth = 1.5;
    context.strokeStyle = theme === "light" ? "#b34700" : "#ffb35c";
    context.stroke();
  }
  for (const { first, end } of picture.hidden) {
    context.fillStyle = theme === "light" ? "rgba(244, 246, 249, 0.88)" : "rgba(11, 14, 20, 0.88)";
    context.fillRect(left(first), 0, left(end - first), height);
    context.save();
    context.beginPath();
    context.rect(left(first), 0, left(end - first), height);
    context.clip();
    context.beginPath();
    for (let x = left(first) - height; x < left(end); x += 9) {
      context.moveTo(x, height);
      context.lineTo(x + height, 0);
    }
    context.lineWidth = 1.5;
    context.strokeStyle = mark;
    context.stroke();
    context.restore();
  }
  if (picture.selected) {
    const [first, end] = picture.selected;
    context.fillStyle = theme === "light" ? "rgba(29, 95, 168, 0.22)" : "rgba(121, 189, 240, 0.28)";
    context.fillRect(left(first), 0, left(end - first), height);
    context.lineWidth = 1.5;
    context.strokeStyle = theme === "light" ? "#1d5fa8" : "#79bdf0";
    context.strokeRect(left(first) + 0.75, 0.75, left(end - first) - 1.5, height - 1.5);
  }
  context.fillStyle = mark;
  context.fillRect(Math.min(picture.time * scale, width - 2), 0, 2, height);
}
