/** The carrier of a saved file: it answers from what the file stores, and computes tiles from its maps. */

import { AskError, asFloats, type Buffers, type Carrier } from "./client";
import { openMap, readMask, type StoredMap } from "./file_maps";
import { readFloats } from "./floats";
import { decodeBase64, decompress } from "./gzip";
import { type Answer, type Ask, RunAnswers } from "./run_answers";
import type { HeadVectors } from "./steps";
import type { Language, Pass, Piece, SavedIndex, Sequence, Steps } from "../protocol";

export function openFile(document: Document): Carrier {
  let onMessage: (head: Record<string, any>, buffers: Buffers) => void = () => {};
  const answers = loadFile(document).then(
    (file) => new FileAnswers(file.index, file.blob),
    (error) => {
      throw new AskError(String(error), "internal");
    },
  );
  let turn: Promise<unknown> = Promise.resolve();
  return {
    send(ask) {
      // one after the other, like a session
      turn = turn.then(async () => {
        try {
          const answer = await (await answers).answer(ask);
          if (!answer) throw new AskError(MISSING[ask.language === "ko" ? "ko" : "en"], "invalid");
          onMessage({ answer: ask.id, body: answer.body }, answer.buffers ?? []);
        } catch (error) {
          const { message, reason } = error instanceof AskError ? error : { message: String(error), reason: "internal" };
          onMessage({ failed: ask.id, message, reason }, []);
        }
      });
    },
    receive(listener) {
      onMessage = listener;
    },
  };
}

async function loadFile(document: Document): Promise<{ index: SavedIndex; blob: Uint8Array }> {
  const index = JSON.parse(document.getElementById("jumok-index")!.textContent!);
  return { index, blob: await decompress(decodeBase64(document.getElementById("jumok-blob")!.textContent!.trim())) };
}

class FileAnswers extends RunAnswers {
  private maps = new Map<string, StoredMap>();

  constructor(
    private index: SavedIndex,
    private blob: Uint8Array,
  ) {
    super(index.run);
  }

  private cut({ at, bytes }: Piece): Uint8Array {
    return this.blob.subarray(at, at + bytes);
  }

  override answer(ask: Ask): Promise<Answer | null> | Answer | null {
    switch (ask.ask) {
      case "hello":
        return { body: this.index.hello };
      case "run":
        return { body: this.run, buffers: this.index.image ? [this.cut(this.index.image)] : [] };
      case "audio": {
        const { audio } = this.index;
        if (!audio || !this.run.audio) return null;
        return { body: { bands: this.run.audio.bands, frames: this.run.audio.frames }, buffers: [this.cut(audio.wav), this.cut(audio.spectrogram)] };
      }
      case "listening":
        return this.answerListening(ask);
      case "kinds":
        return this.index.kinds && { body: this.index.kinds };
      case "effect": {
        const stored = this.index.effects.find(({ over }) => over === ask.over);
        return stored ? { body: stored } : null;
      }
      case "layers": {
        const stored = this.index.layers[ask.show as Pass]?.[ask.sequence as Sequence];
        return stored ? { body: JSON.parse(new TextDecoder().decode(this.cut(stored)))[ask.position] } : null;
      }
      case "code":
        return { body: { code: this.index.code } };
      case "thumbnails":
        return this.answerThumbnails(ask);
      case "select":
      case "cancel":
        return { body: {} };
    }
    return super.answer(ask);
  }

  override findMap(pass: Pass, site: number, head: number): StoredMap | null {
    const stored = this.index.maps[pass]?.[site]?.[head];
    if (!stored) return null;
    const name = `${pass}/${site}/${head}`;
    const { queries, keys } = this.run.sites[site];
    if (!this.maps.has(name)) this.maps.set(name, openMap(stored, queries, keys, (piece) => this.cut(piece)));
    return this.maps.get(name)!;
  }

  override findVectors(pass: Pass, site: number, head: number): HeadVectors | null {
    const attention = this.index.vectors[pass]?.[site];
    if (!attention) return null;
    const stored = attention.heads[head];
    const { keys } = this.run.sites[site];
    const [query, key, value] = [stored.query, stored.key, stored.value].map((piece) => readFloats(this.cut(piece), attention.form));
    const bias = stored.bias && readFloats(this.cut(stored.bias), attention.form);
    const allowed = stored.allowed && this.cut(stored.allowed);
    const differences = asFloats(this.cut(stored.difference));
    return {
      keys,
      width: stored.width,
      query,
      key,
      value,
      score: stored.score,
      biasAt: bias && ((row, column) => bias[row * keys + column]),
      allows: allowed ? (row, column) => allowed[row * keys + column] === 1 : readMask(stored.mask!),
      compare: (row) => differences[row],
    };
  }

  override writeSentences(pass: Pass, site: number, language: Language): Steps["sentences"] {
    return this.index.vectors[pass]![site]!.sentences[language];
  }

  private answerThumbnails({ show, site }: Ask): Answer {
    const { heads, rows, columns, is_preview, ...piece } = this.index.thumbnails[show as Pass]![site];
    return { body: { heads, rows, columns, is_preview }, buffers: [this.cut(piece)] };
  }

  private answerListening({ show, site, head }: Ask): Answer {
    const sound = this.index.run.audio!;
    const body = { words: sound.words.length, positions: sound.positions };
    if (site === undefined || site === null) return { body, buffers: [this.cut(this.index.audio!.listening[show as Pass]!).slice()] };
    const map = this.open(show, site, head);
    const row = new Float32Array(map.keys);
    const weights = new Float32Array(body.words * body.positions);
    sound.words.forEach(({ rows: [first, end] }, word) => {
      for (let query = first; query < end; query++) {
        map.readRow(query, row);
        for (let position = 0; position < body.positions; position++) weights[word * body.positions + position] += row[position] / (end - first);
      }
    });
    return { body, buffers: [new Uint8Array(weights.buffer)] };
  }
}

const MISSING = {
  en: "This file does not contain that; open the model with: jumok look MODEL TEXT --open",
  ko: "이 파일에는 그 내용이 없습니다. 모델을 여세요: jumok look 모델 텍스트 --open",
};
