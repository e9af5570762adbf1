/** The passages that the model read, with what was measured about each of them, and the control passages. */

import { useApp } from "../app";
import { formatPercent, formatSigned } from "../describe";
import type { Answer, Passage } from "../protocol";
import type { Words } from "../words";

export function PassageList({ answer }: { answer: Answer }) {
  const app = useApp();
  const words = app.words.value;
  const evidence = app.desk.evidence.value;
  const controls = evidence?.controls ?? [];
  const changes = [...answer.passages, ...controls].map(({ change }) => Math.abs(change ?? 0));
  const most = Math.max(...changes, -answer.threshold * 1.25);
  if (!answer.passages.length) return <p class="jk-hint">{words.nothingFound}</p>;
  return (
    <>
      <div class="jk-panel-title">
        <h2>{words.passagesTitle}</h2>
        <p class="jk-hint">{answer.is_cuttable ? words.passagesHint : words.passagesNotRead}</p>
      </div>
      <ol class="jk-passage-list">
        {answer.passages.map((passage, index) => (
          <PassageCard
            key={`${answer.number}.${index}`}
            passage={{ ...passage, attention: evidence?.attention[index] ?? null }}
            index={index}
            isCited={answer.citation === index}
            canCut={answer.is_cuttable}
            most={most}
            threshold={answer.threshold}
          />
        ))}
      </ol>
      {answer.is_cuttable && <p class="jk-hint">{words.cutHint(formatSigned(answer.threshold))}</p>}
      {controls.length > 0 && (
        <details class="jk-controls">
          <summary>{words.controlsTitle(controls.length)}</summary>
          <p class="jk-hint">{words.controlsHint}</p>
          <ol class="jk-passage-list">
            {controls.map((passage, index) => (
              <PassageCard key={index} passage={passage} index={null} isCited={false} canCut={false} most={most} threshold={answer.threshold} />
            ))}
          </ol>
        </details>
      )}
    </>
  );
}

interface PassageCardProps {
  passage: Omit<Passage, "range">;
  index: number | null; // null: a control
  isCited: boolean;
  canCut: boolean;
  most: number; // the change that fills a bar
  threshold: number;
}

function PassageCard({ passage, index, isCited, canCut, most, threshold }: PassageCardProps) {
  const app = useApp();
  const words = app.words.value;
  const isCut = index !== null && app.desk.cut.value.includes(index);
  const toggle = () => canCut && index !== null && app.desk.toggle(index);
  return (
    <li
      class={`jk-passage${isCut ? " jk-cut" : ""}${isCited ? " jk-cited" : ""}${canCut ? " jk-clickable" : ""}`}
      data-passage={index ?? "control"}
      onClick={() => {
        if (!getSelection()?.toString()) toggle(); // a text that is selected is to be copied
      }}
    >
      <div class="jk-passage-title">
        <strong>{passage.location}</strong>
        {isCited && <span class="jk-cited-mark">{words.cited}</span>}
        {canCut && (
          <button
            aria-pressed={isCut}
            aria-label={`${words.cutPassage}: ${passage.location}`}
            onClick={(event) => {
              event.stopPropagation();
              toggle();
            }}
          >
            {isCut ? words.putBack : words.cutPassage}
          </button>
        )}
      </div>
      <p class="jk-passage-text" tabIndex={0}>
        {passage.text}
      </p>
      <dl class="jk-measures">
        {passage.change !== null && (
          <>
            <dt>{words.changeWhenCut}</dt>
            <dd>
              <Bar share={Math.abs(passage.change) / most} isNegative={passage.change < 0} />
              <span class="jk-number">{words.natsOf(formatSigned(passage.change))}</span>
            </dd>
            <dt>{words.changedWord(passage.word)}</dt>
            <dd>
              <Bar share={Math.abs(passage.word_change ?? 0) / most} mark={-threshold / most} isNegative={(passage.word_change ?? 0) < 0} />
              <span class="jk-number">{words.natsOf(formatSigned(passage.word_change ?? 0))}</span>
            </dd>
            <dt>{words.attentionOn}</dt>
            <dd>
              <Bar share={passage.attention ?? 0} />
              <span class="jk-number">{passage.attention === null ? "…" : formatPercent(passage.attention)}</span>
            </dd>
          </>
        )}
        {index !== null && (
          <>
            <dt>{words.searchScores}</dt>
            <dd class="jk-number">{describeScores(words, passage)}</dd>
          </>
        )}
      </dl>
    </li>
  );
}

function Bar({ share, mark, isNegative = false }: { share: number; mark?: number; isNegative?: boolean }) {
  return (
    <span class="jk-track jk-change-track">
      <span class={`jk-bar${isNegative ? " jk-negative" : ""}`} style={{ width: `${Math.min(share, 1) * 100}%` }} />
      {mark !== undefined && <i style={{ left: `${mark * 100}%` }} />}
    </span>
  );
}

function describeScores(words: Words, { cosine, bm25 }: Omit<Passage, "range">): string {
  return [cosine !== null && `${words.cosine} ${cosine.toFixed(2)}`, bm25 !== null && `BM25 ${bm25.toFixed(1)}`].filter(Boolean).join(" · ");
}
