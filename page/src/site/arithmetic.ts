/** One attention, computed plainly: scores, mask and softmax of a few words. */

export type Matrix = number[][];

export function multiply(left: Matrix, right: Matrix): Matrix {
  return left.map((row) => right[0].map((_, column) => row.reduce((sum, value, index) => sum + value * right[index][column], 0)));
}

export function add(left: Matrix, right: Matrix): Matrix {
  return left.map((row, index) => row.map((value, column) => value + right[index][column]));
}

/** Return the columns of one of several heads. */
export function cutHead(vectors: Matrix, head: number, heads: number): Matrix {
  const width = vectors[0].length / heads;
  return vectors.map((row) => row.slice(head * width, (head + 1) * width));
}

/** Return the dot product of every query with every key. */
export function computeProducts(queries: Matrix, keys: Matrix): Matrix {
  return queries.map((query) => keys.map((key) => query.reduce((sum, value, index) => sum + value * key[index], 0)));
}

/** Return the softmax of a row; 0 for what is not allowed, and for all if nothing is. */
export function softmax(scores: readonly number[], allowed: readonly boolean[]): number[] {
  const most = Math.max(...scores.filter((_, index) => allowed[index]));
  const exponentials = scores.map((score, index) => (allowed[index] ? Math.exp(score - most) : 0));
  const total = exponentials.reduce((sum, value) => sum + value, 0);
  return exponentials.map((value) => (total ? value / total : 0));
}
