/** The colour scale with its numbers and its unit. */

import { useEffect, useRef } from "preact/hooks";
import { useApp } from "../app";
import { differenceColour, unshade, weightColour } from "../colour";

const WIDTH = 160;

export function Legend({ isDifference, most }: { isDifference: boolean; most: number }) {
  const app = useApp();
  const words = app.words.value;
  const ref = useRef<HTMLCanvasElement>(null);
  const scale = app.scale.value;
  const theme = app.theme.value;
  useEffect(() => {
    const canvas = ref.current!;
    const image = new ImageData(WIDTH, 1);
    for (let x = 0; x < WIDTH; x++) {
      const share = x / (WIDTH - 1);
      const colour = isDifference
        ? differenceColour(Math.sign(share - 0.5) * unshade(Math.abs(2 * share - 1), scale, most), scale, most, theme)
        : weightColour(unshade(share, scale, most), scale, most, theme);
      image.data.set([...colour, 255], 4 * x);
    }
    canvas.getContext("2d")!.putImageData(image, 0, 0);
  }, [isDifference, most, scale, theme]);
  const ticks = isDifference ? [-most, 0, most] : [0, unshade(0.5, scale, most), most];
  return (
    <div class="jk-legend">
      <canvas ref={ref} width={WIDTH} height={1} aria-hidden />
      <div class="jk-ticks">
        {ticks.map((tick, index) => (
          <span key={index}>{Number(tick.toPrecision(2)).toString().replace("-", "−")}</span>
        ))}
      </div>
      <small>{isDifference ? words.differenceScale : words.weightScale}</small>
    </div>
  );
}
