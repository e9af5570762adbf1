/** The first screen: type Korean, see English appear with its cross-attention, take words and heads away. */

import { useEffect, useRef, useState } from "preact/hooks";
import { cssColour, inkOn, weightColour } from "../colour";
import { ColumnLabel } from "./column_label";
import { useTheme } from "./theme";
import { loadTranslator, type Removed, type Translation } from "./translator";
import { words } from "./words";

export interface TranslatorData {
  examples: string[];
  first: Translation; // of the first example, computed when the site was built
}

const NOTHING: Removed = { heads: [], tokens: [] };
const SHORT_PAUSE = 350; // milliseconds after the last key

export function TranslatorCell({ data }: { data: TranslatorData }) {
  const [text, setText] = useState(data.examples[0]);
  const [clean, setClean] = useState(data.first);
  const [shown, setShown] = useState(data.first);
  const [removed, setRemoved] = useState(NOTHING);
  const [head, setHead] = useState(() => findSharpestHead(data.first));
  const [word, setWord] = useState<number | null>(null); // the English word that the pointer is on
  const [state, setState] = useState<"" | "loading" | "failed">("");
  const [problem, setProblem] = useState("");
  const newest = useRef(0);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);

  const load = () => {
    setState((old) => old || "loading");
    return loadTranslator().then(
      (translate) => (setState(""), translate),
      () => (setState("failed"), null),
    );
  };
  const run = async (sentence: string, without: Removed) => {
    const number = ++newest.current;
    setRemoved(without);
    const translate = await load();
    if (!translate || number !== newest.current) return;
    try {
      const whole = sentence === text && clean ? clean : translate(sentence, NOTHING);
      setClean(whole);
      setShown(isEmpty(without) ? whole : translate(sentence, without));
      setProblem("");
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  const type = (sentence: string, pause = 0) => {
    clearTimeout(timer.current);
    setText(sentence);
    setRemoved(NOTHING);
    setWord(null);
    if (!sentence.trim()) setProblem("");
    timer.current = setTimeout(async () => {
      const number = ++newest.current;
      const translate = sentence.trim() ? await load() : null;
      if (!translate || number !== newest.current) return;
      try {
        const whole = translate(sentence, NOTHING);
        setClean(whole);
        setShown(whole);
        setProblem("");
      } catch (error) {
        setProblem((error as Error).message);
      }
    }, pause);
  };
  useEffect(() => () => clearTimeout(timer.current), []);

  const [layer, index] = head;
  const toggle = (names: string[], isOut: boolean) =>
    void run(text, { ...removed, heads: isOut ? removed.heads.filter((name) => !names.includes(name)) : [...new Set([...removed.heads, ...names])] });
  const toggleToken = (positions: number[]) => {
    const isOut = positions.every((position) => removed.tokens.includes(position));
    const others = removed.tokens.filter((position) => !positions.includes(position));
    void run(text, { ...removed, tokens: isOut ? others : [...others, ...positions] });
  };
  const isOut = removed.heads.includes(`${layer}.${index}`);
  const layerNames = shown.maps[layer].map((_, number) => `${layer}.${number}`);
  const isLayerOut = layerNames.every((name) => removed.heads.includes(name));
  const [was, now] = [clean, shown].map(({ target }) => target.filter(Boolean).join(" "));
  const [sure, unsure] = [clean, shown].map(({ probabilities }) => `${(100 * probabilities.reduce((product, value) => product * value, 1)).toFixed(1)}%`);
  return (
    <div class="translator" onPointerEnter={() => void load()} onFocusIn={() => void load()}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          type(text);
        }}
      >
        <label>
          <span class="side">{words.korean}</span>
          <input lang="ko" value={text} placeholder={words.typeHint} autocomplete="off" spellcheck={false} maxLength={80} onInput={(event) => type(event.currentTarget.value, SHORT_PAUSE)} />
        </label>
      </form>
      <p class="examples">
        {words.examples}{" "}
        {data.examples.map((sentence) => (
          <button type="button" lang="ko" key={sentence} aria-pressed={sentence === text} onClick={() => type(sentence)}>
            {sentence}
          </button>
        ))}
      </p>
      <div class="cross">
        <div class="translation" data-stale={problem !== ""}>
          <SourceWords source={clean.source} hidden={removed.tokens} weights={word === null ? null : shown.maps[layer][index][word]} onToggle={toggleToken} />
          <p class="target" lang="en" aria-live="polite">
            <span class="side">{words.english}</span>
            {shown.target.map((english, position) =>
              english ? (
                <button
                  type="button"
                  key={position}
                  class="english"
                  aria-pressed={position === word}
                  data-new={!clean.target.includes(english)}
                  title={words.probability(english, shown.probabilities[position].toFixed(2))}
                  onClick={() => setWord(position === word ? null : position)}
                  onPointerEnter={(event) => event.pointerType === "mouse" && setWord(position)}
                  onPointerLeave={(event) => event.pointerType === "mouse" && setWord(null)}
                >
                  {english}
                </button>
              ) : null,
            )}
          </p>
          <p class="hint" role="status">
            <span>
              {problem || (state === "loading" ? words.loadingModel : state === "failed" ? words.modelFailed : isEmpty(removed) ? words.wordsHint : was === now ? words.noChange(sure, unsure) : words.changed(was))}
            </span>
            {!isEmpty(removed) && (
              <button type="button" onClick={() => void run(text, NOTHING)}>
                {words.putAllBack}
              </button>
            )}
          </p>
          <div class="heads">
            <p class="title">{words.headsTitle}</p>
            {shown.maps.map((heads, number) => (
              <div class="layer" key={number}>
                <span>{words.layer(number)}</span>
                {heads.map((map, position) => (
                  <button
                    type="button"
                    key={position}
                    aria-label={words.headName(number, position)}
                    aria-pressed={layer === number && index === position}
                    data-out={removed.heads.includes(`${number}.${position}`)}
                    onClick={() => setHead([number, position])}
                  >
                    <Thumbnail map={map} />
                  </button>
                ))}
              </div>
            ))}
            <p class="hint">{words.headsHint}</p>
            <div class="actions">
              <button type="button" class="main" onClick={() => toggle([`${layer}.${index}`], isOut)}>
                {isOut ? words.putBack : words.takeAway}
              </button>
              <button type="button" onClick={() => toggle(layerNames, isLayerOut)}>
                {isLayerOut ? words.putLayerBack : words.takeLayer}
              </button>
            </div>
          </div>
        </div>
        <Map title={words.mapTitle(layer, index)} isOut={isOut} translation={shown} map={shown.maps[layer][index]} row={word} onRow={setWord} />
      </div>
    </div>
  );
}

function SourceWords({ source, hidden, weights, onToggle }: { source: string[]; hidden: number[]; weights: number[] | null; onToggle: (positions: number[]) => void }) {
  const theme = useTheme();
  return (
    <p class="source" lang="ko">
      <span class="side" />
      {groupWords(source).map(({ text, positions }) => {
        const isHidden = positions.every((position) => hidden.includes(position));
        const weight = weights ? positions.reduce((sum, position) => sum + weights[position], 0) : 0;
        const colour = weightColour(weight, "linear", 1, theme);
        return (
          <button
            type="button"
            key={positions[0]}
            aria-pressed={isHidden}
            title={isHidden ? words.hiddenWord(text) : words.shownWord(text)}
            style={weight > 0.02 ? { background: cssColour(colour), color: inkOn(colour) } : undefined}
            onClick={() => onToggle(positions)}
          >
            {text}
          </button>
        );
      })}
    </p>
  );
}

/** Put the parts of each word together; the token at the end is no word. */
function groupWords(source: string[]): { text: string; positions: number[] }[] {
  const groups: { text: string; positions: number[] }[] = [];
  source.forEach((token, position) => {
    if (!token) return;
    const last = groups.at(-1);
    if (token.startsWith("##") && last) {
      last.text += token.slice(2);
      last.positions.push(position);
    } else groups.push({ text: token, positions: [position] });
  });
  return groups;
}

interface MapProps {
  title: string;
  isOut: boolean;
  translation: Translation;
  map: number[][];
  row: number | null;
  onRow: (row: number | null) => void;
}

function Map({ title, isOut, translation, map, row, onRow }: MapProps) {
  const theme = useTheme();
  const { source, target } = translation;
  return (
    <figure class="cross-map" data-out={isOut}>
      <figcaption>
        {title} {isOut && <strong>{words.isOut}</strong>}
      </figcaption>
      <div class="table-scroll">
        <table class="weights">
          <thead>
            <tr>
              <td />
              {source.map((token, key) => (
                <th key={key} scope="col" lang="ko">
                  <ColumnLabel label={token ? token.replace("##", "-") : `(${words.endToken})`} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {map.map((weights, query) => (
              <tr key={query} aria-selected={query === row} onPointerEnter={() => target[query] && onRow(query)} onPointerLeave={() => onRow(null)}>
                <th scope="row" lang="en">
                  {target[query] || `(${words.endToken})`}
                </th>
                {weights.map((weight, key) => {
                  const colour = weightColour(weight, "sqrt", 1, theme);
                  return (
                    <td key={key} style={{ background: cssColour(colour), color: inkOn(colour) }}>
                      {weight >= 0.1 ? weight.toFixed(2).slice(weight >= 0.995 ? 0 : 1) : ""}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}

function Thumbnail({ map }: { map: number[][] }) {
  const theme = useTheme();
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    [canvas.current!.width, canvas.current!.height] = [map[0].length, map.length];
    map.forEach((weights, query) =>
      weights.forEach((weight, key) => {
        context.fillStyle = cssColour(weightColour(weight, "sqrt", 1, theme));
        context.fillRect(key, query, 1, 1);
      }),
    );
  }, [map, theme]);
  return <canvas ref={canvas} />;
}

function findSharpestHead({ maps }: Translation): [number, number] {
  const sharpness = (map: number[][]) => map.reduce((sum, row) => sum + Math.max(...row), 0) / map.length;
  const heads = maps.flatMap((layer, number) => layer.map((map, index) => ({ number, index, value: sharpness(map) })));
  const best = heads.reduce((left, right) => (right.value > left.value ? right : left));
  return [best.number, best.index];
}

function isEmpty({ heads, tokens }: Removed): boolean {
  return heads.length + tokens.length === 0;
}
