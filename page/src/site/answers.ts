/** Check the answer of an exercise by the rules of `jumok check` (jumok.lab.exercises.exercise); its data comes from the
 * same files, and tools/site/check_site.py compares the verdicts of both. */

/** Texts with `{name}`, `{name:g}` or `{name!r}` for values, as Python formats them. */
export interface ExerciseTexts {
  count: string;
  too_large: string;
  too_small: string;
  position: string;
  word: string;
  quiz_result: string;
  not_a_number: string;
  not_finite: string;
  no_numbers: string;
  no_word: string;
}

interface Reasoned {
  answer: number[] | string[];
  reason: string;
}
export interface NumberExercise extends Reasoned {
  name: string;
  kind: "numbers";
  tolerance: number;
  mistakes: Reasoned[];
}
export interface WordExercise extends Reasoned {
  name: string;
  kind: "words";
  mistakes: Reasoned[];
}
export interface QuizExercise {
  name: string;
  kind: "quiz";
  questions: { question: string; options: string[]; reasons: string[]; right: number }[];
}
export type Exercise = NumberExercise | WordExercise | QuizExercise;

export interface Verdict {
  isRight: boolean;
  reason: string;
}

/** An answer that cannot be read. */
export class AnswerError extends Error {}

const THOUSANDS = /^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$/;
const UNITS = /(?<=\d)\s*(MB|개|배|번)$/i;
const SEPARATORS = /[\s,;\[\]()]+/;
const FLOAT = /^[+-]?(\d+(_\d+)*(\.(\d+(_\d+)*)?)?|\.\d+(_\d+)*)(e[+-]?\d+(_\d+)*)?$/i;
const NOT_FINITE = /^[+-]?(nan|inf|infinity)$/i;

export function checkAnswer(exercise: NumberExercise | WordExercise, answer: string, texts: ExerciseTexts): Verdict {
  return exercise.kind === "numbers" ? checkNumbers(exercise, answer, texts) : checkWord(exercise, answer, texts);
}

function checkNumbers(exercise: NumberExercise, answer: string, texts: ExerciseTexts): Verdict {
  const numbers = parseNumbers(answer, texts);
  const compare = (expected: number[]): string | null => {
    if (numbers.length !== expected.length) return format(texts.count, { expected: expected.length, count: numbers.length });
    // the small factor accepts numbers that are rounded exactly at the tolerance
    const index = numbers.findIndex((number, position) => Math.abs(number - expected[position]) > exercise.tolerance * 1.0001);
    if (index < 0) return null;
    const number = numbers[index];
    if (expected.length === 1) return format(number > expected[0] ? texts.too_large : texts.too_small, { number });
    return format(texts.position, { position: index + 1, number });
  };
  return judge(exercise, compare as (expected: number[] | string[]) => string | null);
}

function checkWord(exercise: WordExercise, answer: string, texts: ExerciseTexts): Verdict {
  const word = simplify(answer);
  if (!word) throw new AnswerError(texts.no_word);
  return judge(exercise, (spellings) => ((spellings as string[]).includes(word) ? null : format(texts.word, { word: answer.trim() })));
}

function judge(exercise: NumberExercise | WordExercise, compare: (expected: number[] | string[]) => string | null): Verdict {
  const difference = compare(exercise.answer);
  if (difference === null) return { isRight: true, reason: exercise.reason };
  const mistake = exercise.mistakes.find(({ answer }) => compare(answer) === null);
  return { isRight: false, reason: mistake?.reason ?? difference };
}

export function parseNumbers(answer: string, texts: ExerciseTexts): number[] {
  const text = answer.trim().replace(UNITS, "");
  if (THOUSANDS.test(text)) return [Number(text.replaceAll(",", ""))];
  const parts = text.split(SEPARATORS).filter(Boolean);
  for (const part of parts) {
    if (NOT_FINITE.test(part)) throw new AnswerError(format(texts.not_finite, { part }));
    if (!FLOAT.test(part)) throw new AnswerError(format(texts.not_a_number, { part }));
  }
  if (!parts.length) throw new AnswerError(texts.no_numbers);
  return parts.map((part) => {
    const number = Number(part.replaceAll("_", ""));
    if (!Number.isFinite(number)) throw new AnswerError(format(texts.not_finite, { part }));
    return number;
  });
}

export function simplify(word: string): string {
  return word.trim().replace(/^["'`]+|["'`]+$/g, "").trim().toLowerCase();
}

/** Fill a text of Python: `{number:g}` with at most six digits, `{word!r}` in quotes. */
export function format(text: string, values: Record<string, string | number>): string {
  return text.replace(/\{(\w+)(:g|!r)?\}/g, (_, name: string, form?: string) => {
    const value = values[name];
    if (form === ":g") return writeShort(value as number);
    return form === "!r" ? quote(String(value)) : String(value);
  });
}

function writeShort(number: number): string {
  const [digits, exponent] = number.toExponential(5).split("e");
  const power = Number(exponent);
  if (number === 0) return "0";
  if (power >= -4 && power < 6) return String(Number(number.toPrecision(6)));
  return `${Number(digits)}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

function quote(text: string): string {
  return text.includes("'") && !text.includes('"') ? `"${text}"` : `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
