/** The audio that the model read: play it, follow its words, see where they are heard, and hide a stretch of it. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type App, useApp } from "../app";
import { describeHead } from "../describe";
import { Help } from "../guide/help";
import type { Sound } from "../protocol";
import { buildSpectrogram, paintSound } from "./sound_painter";
import { listStretches } from "../cuts";
import { asFloats } from "../wire/client";
import { ComparedTexts } from "./compared_texts";
import { useAnswer, useSize } from "./hooks";

const STEP = 5; // positions that an arrow key moves: 100 ms
const LEAST_DRAG = 4; // pixels; less is a click
const PIXELS_PER_SECOND = 190; // at least, so that short words can be read; longer audio scrolls

export function SoundStrip() {
  const app = useApp();
  const sound = app.run.current.value?.audio ?? null;
  return sound ? <Strip key={sound.seconds} app={app} sound={sound} /> : null;
}

function Strip({ app, sound }: { app: App; sound: Sound }) {
  const words = app.words.value;
  const run = app.run.current.value!;
  const player = useRef<HTMLAudioElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const url = useSignal("");
  const bytes = useSignal<Uint8Array | null>(null);
  const time = useSignal(0);
  const isPlaying = useSignal(false);
  const ownHead = useSignal(false);
  const weights = useSignal<Float32Array>(new Float32Array());
  const selected = useSignal<[number, number] | null>(null);
  const anchor = useRef<number | null>(null); // where a stretch that the keyboard selects begins
  const size = useSize(canvas);
  const rate = sound.positions_per_second;
  const site = app.selection.site.value;
  const isListening = site?.query_sequence === "target" && site.key_sequence === "source";
  const canHide = app.canEdit.value;

  const loadedKey = useSignal(-1);
  const soundKey = app.run.soundKey.value;
  // once for each input; a run that came too early is asked again
  useAnswer(
    app,
    "audio",
    loadedKey.value === soundKey ? null : { run: run.run },
    ({ buffers }) => {
      loadedKey.value = soundKey;
      URL.revokeObjectURL(url.value);
      url.value = URL.createObjectURL(new Blob([buffers[0].slice()], { type: "audio/wav" }));
      bytes.value = buffers[1].slice();
    },
    (error) => app.fail(error),
  );
  useEffect(() => () => URL.revokeObjectURL(url.peek()), []);

  const { site: siteIndex, head } = app.selection.current.value;
  const usesHead = ownHead.value && isListening;
  useAnswer(
    app,
    "listening",
    { run: run.run, show: app.pass.value, ...(usesHead ? { site: siteIndex, head } : {}) },
    ({ buffers }) => (weights.value = asFloats(buffers[0])),
    () => (weights.value = new Float32Array()), // a saved file without this map
  );

  useEffect(() => {
    if (!isPlaying.value) return;
    let request = 0;
    const follow = () => {
      time.value = player.current?.currentTime ?? 0;
      request = requestAnimationFrame(follow);
    };
    request = requestAnimationFrame(follow);
    return () => cancelAnimationFrame(request);
  }, [isPlaying.value]);

  const current = sound.words.findIndex(({ start, end }) => start <= time.value && time.value < end);
  const hidden = listStretches(run, app.edits.current.value);
  const theme = app.theme.value;
  const picture = useRef<{ bytes: Uint8Array | null; theme: string; canvas: HTMLCanvasElement | null }>({ bytes: null, theme: "", canvas: null });
  if (bytes.value && (picture.current.bytes !== bytes.value || picture.current.theme !== theme))
    picture.current = { bytes: bytes.value, theme, canvas: buildSpectrogram(bytes.value, sound, theme) };
  useEffect(() => {
    const count = sound.positions;
    const row = current >= 0 && weights.value.length === sound.words.length * count ? weights.value.subarray(current * count, (current + 1) * count) : null;
    paintSound(canvas.current!, { sound, theme, spectrogram: picture.current.canvas, weights: row, hidden, selected: selected.value, time: time.value });
  });
  useEffect(() => {
    const strip = canvas.current!.parentElement!;
    const x = (time.value / sound.seconds) * canvas.current!.clientWidth;
    const box = strip.parentElement!;
    if (x < box.scrollLeft || x > box.scrollLeft + box.clientWidth - 40) box.scrollLeft = x - 60;
  }, [Math.floor(time.value * 4)]);

  const seek = (seconds: number) => {
    const bounded = Math.max(0, Math.min(seconds, sound.seconds));
    time.value = bounded;
    if (player.current) player.current.currentTime = bounded;
  };
  const toggle = () => {
    const element = player.current!;
    if (element.paused) {
      if (element.ended || element.currentTime >= sound.seconds - 0.02) seek(0);
      void element.play().catch((error) => app.fail(error));
    } else element.pause();
  };
  const chooseWord = (index: number) => {
    const word = sound.words[index];
    seek(word.start + 0.001);
    if (isListening || site?.query_sequence === "target") app.selection.change({ query: word.rows[0], key: null });
    else if (sound.heads.length) app.selection.current.value = { site: sound.heads[0][0], head: sound.heads[0][1], query: word.rows[0], key: null };
    app.announcement.value = words.wordAt(word.text, formatTime(sound, word.start), formatTime(sound, word.end));
  };
  const hide = () => {
    if (!selected.value || !canHide) return;
    app.edits.hideSound(...selected.value);
    selected.value = null;
    anchor.current = null;
  };

  const positionAt = (event: PointerEvent) => {
    const bounds = canvas.current!.getBoundingClientRect();
    return Math.max(0, Math.min((event.clientX - bounds.left) / bounds.width, 1)) * sound.seconds * rate;
  };
  const drag = useRef<{ x: number; position: number } | null>(null);
  const onPointerDown = (event: PointerEvent) => {
    if (event.button !== 0) return;
    canvas.current!.setPointerCapture(event.pointerId);
    drag.current = { x: event.clientX, position: positionAt(event) };
  };
  const onPointerMove = (event: PointerEvent) => {
    if (!drag.current || Math.abs(event.clientX - drag.current.x) < LEAST_DRAG) return;
    const [low, high] = [drag.current.position, positionAt(event)].sort((a, b) => a - b);
    selected.value = [Math.floor(low), Math.max(Math.ceil(high), Math.floor(low) + 1)];
  };
  const onPointerUp = (event: PointerEvent) => {
    const start = drag.current;
    drag.current = null;
    if (!start || Math.abs(event.clientX - start.x) >= LEAST_DRAG) return;
    selected.value = null;
    const seconds = start.position / rate;
    const index = sound.words.findIndex((word) => word.start <= seconds && seconds < word.end);
    if (index >= 0) chooseWord(index);
    seek(seconds);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? STEP : event.key === "ArrowLeft" ? -STEP : 0;
    if (event.key === " " || event.key === "Enter") toggle();
    else if (step && event.shiftKey) {
      anchor.current ??= Math.round(time.value * rate);
      const edge = Math.max(0, Math.min(Math.round(time.value * rate) + step, sound.positions));
      seek(edge / rate);
      const [first, end] = [Math.min(anchor.current, edge), Math.max(anchor.current, edge)];
      selected.value = end > first ? [first, end] : null;
      if (selected.value) app.announcement.value = words.stretch(formatTime(sound, first / rate), formatTime(sound, end / rate));
    } else if (step) {
      anchor.current = null;
      selected.value = null;
      seek(time.value + step / rate);
    } else if (event.key === "Delete" || event.key === "Backspace") hide();
    else if (event.key === "Escape") {
      selected.value = null;
      anchor.current = null;
    } else if (event.key === "Home" || event.key === "End") seek(event.key === "Home" ? 0 : sound.seconds);
    else return;
    event.preventDefault();
  };
  const moveWord = (event: KeyboardEvent, index: number) => {
    const next = index + (event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0);
    if (next === index || !sound.words[next]) return;
    chooseWord(next);
    (event.currentTarget as HTMLElement).parentElement!.querySelector<HTMLElement>(`[data-word="${next}"]`)?.focus();
    event.preventDefault();
  };

  const stretch = selected.value && [formatTime(sound, selected.value[0] / rate), formatTime(sound, Math.min(selected.value[1] / rate, sound.seconds))];
  return (
    <section class="jk-sound jk-panel" aria-label={words.soundTitle}>
      <div class="jk-toolbar">
        <button class="jk-main" data-action="play-sound" disabled={!url.value} aria-pressed={isPlaying.value} onClick={toggle}>
          {isPlaying.value ? `❚❚ ${words.pause}` : `▶ ${words.play}`}
        </button>
        <span class="jk-number" data-time={time.value.toFixed(2)}>
          {formatTime(sound, time.value)} / {formatTime(sound, sound.seconds)} {words.seconds}
        </span>
        <Help of={["spectrogram", "timing", "crossAttention"]} label={words.soundTitle} />
        <span class="jk-hint">{words.listeningTitle}</span>
        <div class="jk-choice" role="group" aria-label={words.listeningTitle}>
          <button aria-pressed={!usesHead} data-listening="timing" title={words.timingHeadsHint(sound.heads.length)} onClick={() => (ownHead.value = false)}>
            {words.timingHeads}
          </button>
          <button aria-pressed={usesHead} data-listening="head" disabled={!isListening} title={isListening ? describeHead(app, app.selection.current.value) : words.notListening} onClick={() => (ownHead.value = true)}>
            {words.selectedHead}
          </button>
        </div>
        {canHide && (
          <button data-action="hide-sound" disabled={!stretch} title={words.hideSoundHint} onClick={hide}>
            {stretch ? words.hideStretch(stretch[0], stretch[1]) : words.hideSound}
          </button>
        )}
        <span class="jk-hint">{hidden.length ? words.hiddenNeighbours : canHide ? words.soundHint : ""}</span>
      </div>
      <div class="jk-sound-scroll">
        <div class="jk-sound-time" style={{ minWidth: `${Math.round(sound.seconds * PIXELS_PER_SECOND)}px` }} data-width={size.value.width}>
          <div class="jk-spoken-words" role="group" aria-label={words.spokenWords}>
            {sound.words.length === 0 && <em class="jk-hint">{words.noSpeech}</em>}
            {sound.words.map(({ text, start, end }, index) => (
              <button
                key={index}
                data-word={index}
                class={index === current ? "jk-spoken" : ""}
                aria-current={index === current ? "true" : undefined}
                tabIndex={index === Math.max(current, 0) ? 0 : -1}
                title={words.wordAt(text, formatTime(sound, start), formatTime(sound, end))}
                style={{ left: `${(100 * start) / sound.seconds}%`, width: `${(100 * (end - start)) / sound.seconds}%` }}
                onClick={() => chooseWord(index)}
                onKeyDown={(event) => moveWord(event, index)}
              >
                {text}
              </button>
            ))}
          </div>
          <canvas
            ref={canvas}
            data-sound
            tabIndex={0}
            role="slider"
            aria-label={words.soundHelp}
            aria-valuemin={0}
            aria-valuemax={Number(sound.seconds.toFixed(2))}
            aria-valuenow={Number(time.value.toFixed(2))}
            aria-valuetext={`${formatTime(sound, time.value)} ${words.seconds}${current >= 0 ? `, ${sound.words[current].text}` : ""}`}
            onPointerDown={onPointerDown}
            onPointerMove={onPointerMove}
            onPointerUp={onPointerUp}
            onKeyDown={onKeyDown}
          />
        </div>
      </div>
      {run.edited_answer !== null && (
        <ComparedTexts titles={[words.clean, words.edited]} before={run.answer ?? ""} after={run.edited_answer} empty={words.noSpeech} />
      )}
      <audio
        ref={player}
        src={url.value || undefined}
        preload="auto"
        onPlay={() => (isPlaying.value = true)}
        onPause={() => {
          isPlaying.value = false;
          time.value = player.current?.currentTime ?? time.value;
        }}
        onSeeked={() => (time.value = player.current?.currentTime ?? time.value)}
      />
    </section>
  );
}

/** Return a time of the window as a time of the recording. */
function formatTime({ begin }: Sound, seconds: number): string {
  return (begin + seconds).toFixed(2);
}
