/** The label of a narrow column: turned by 90 degrees if it is long and in Latin letters. */

const FITS = 4; // Hangul letters in a column of 40 pixels
const HANGUL = /[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]/;

export function ColumnLabel({ label }: { label: string }) {
  const isTurned = label.length > FITS && !HANGUL.test(label);
  return <span class={isTurned ? "turned" : undefined}>{isTurned || label.length <= FITS ? label : `${label.slice(0, FITS - 1)}…`}</span>;
}
