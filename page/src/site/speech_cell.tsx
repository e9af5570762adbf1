/** A spoken sentence: hide a word, hear what remains, and read what the speech model then writes. */

import { useEffect, useRef, useState } from "preact/hooks";
import { useTheme } from "./theme";
import { words } from "./words";

interface SpokenWord {
  text: string;
  start: number; // seconds, found by the model's cross-attention
  end: number;
  without: string; // the transcript when it is hidden
}
export interface SpeechData {
  transcript: string;
  rate: number;
  words: SpokenWord[];
  recording: string; // WAV of 16 bits, one channel, in base64
}

const HEADER = 44; // bytes before the samples
const HEIGHT = 84;

export function SpeechCell({ data }: { data: SpeechData }) {
  const theme = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  const playing = useRef<HTMLAudioElement | null>(null);
  const [hidden, setHidden] = useState<number | null>(null);
  const [bytes] = useState(() => Uint8Array.from(atob(data.recording), (letter) => letter.charCodeAt(0)));
  const samples = new Int16Array(bytes.buffer, HEADER);
  const seconds = samples.length / data.rate;
  const word = hidden === null ? null : data.words[hidden];

  useEffect(() => {
    const element = canvas.current!;
    element.width = element.clientWidth * devicePixelRatio;
    element.height = HEIGHT * devicePixelRatio;
    const context = element.getContext("2d")!;
    const style = getComputedStyle(element);
    const [ink, soft] = ["--accent", "--line"].map((name) => style.getPropertyValue(name));
    for (let x = 0; x < element.width; x++) {
      const [first, last] = [x, x + 1].map((column) => Math.floor((column / element.width) * samples.length));
      let peak = 0;
      for (let index = first; index < last; index++) peak = Math.max(peak, Math.abs(samples[index]));
      const time = first / data.rate;
      context.fillStyle = word && time >= word.start && time < word.end ? soft : ink;
      const height = Math.max(1, (peak / 32768) * element.height);
      context.fillRect(x, (element.height - height) / 2, 1, height);
    }
  }, [hidden, theme]);
  useEffect(() => () => playing.current?.pause(), []);

  const play = () => {
    const copy = bytes.slice();
    if (word) new Int16Array(copy.buffer, HEADER).fill(0, Math.floor(word.start * data.rate), Math.floor(word.end * data.rate));
    playing.current?.pause();
    playing.current = new Audio(URL.createObjectURL(new Blob([copy], { type: "audio/wav" })));
    void playing.current.play();
  };
  return (
    <div class="speech">
      <div class="spoken" lang="en">
        {data.words.map(({ text, start, end }, index) => (
          <button
            type="button"
            key={index}
            aria-pressed={index === hidden}
            style={{ left: `${(100 * start) / seconds}%`, width: `${(100 * (end - start)) / seconds}%` }}
            onClick={() => setHidden(index === hidden ? null : index)}
          >
            {text}
          </button>
        ))}
      </div>
      <canvas ref={canvas} aria-hidden="true" style={{ height: `${HEIGHT}px` }} />
      <p class="transcript">
        <button type="button" class="main" onClick={play}>
          ▶ {words.play}
        </button>
        <span lang="en" aria-live="polite">
          {word ? word.without : data.transcript}
        </span>
      </p>
      <p class="hint">{word ? words.spokenWithout(word.text) : words.speechHint}</p>
    </div>
  );
}
