/** The colour scale with its numbers and its unit. */

import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { differenceColour, overlayColour, unshade, weightColour } from "../colour";

const WIDTH = 160;

export type LegendKind = "weight" | "difference" | "overlay";

export function Legend({ kind, most, title }: { kind: LegendKind; most: number; title?: string }) {
  const isDifference = kind === "difference";
  const app = useApp();
  const words = app.words.value;
  const ref = useRef<HTMLCanvasElement>(null);
  const scale = app.scale.value;
  const theme = app.theme.value;
  useEffect(() => {
    const canvas = ref.current!;
    const context = canvas.getContext("2d")!;
    if (kind === "overlay") {
      context.clearRect(0, 0, WIDTH, 1);
      for (let x = 0; x < WIDTH; x++) {
        context.fillStyle = overlayColour(x / (WIDTH - 1));
        context.fillRect(x, 0, 1, 1);
      }
      return;
    }
    const image = new ImageData(WIDTH, 1);
    for (let x = 0; x < WIDTH; x++) {
      const share = x / (WIDTH - 1);
      const colour = isDifference
        ? differenceColour(Math.sign(share - 0.5) * unshade(Math.abs(2 * share - 1), scale, most), scale, most, theme)
        : weightColour(unshade(share, scale, most), scale, most, theme);
      image.data.set([...colour, 255], 4 * x);
    }
    context.putImageData(image, 0, 0);
  }, [kind, most, scale, theme]);
  const ticks = isDifference ? [-most, 0, most] : [0, unshade(0.5, scale, most), most];
  return (
    <div class="jk-legend">
      <canvas ref={ref} width={WIDTH} height={1} aria-hidden />
      <div class="jk-ticks">
        {ticks.map((tick, index) => (
          <span key={index}>{Number(tick.toPrecision(2)).toString().replace("-", "−")}</span>
        ))}
      </div>
      <small>{title ?? (isDifference ? words.differenceScale : words.weightScale)}</small>
    </div>
  );
}
