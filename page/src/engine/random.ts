/** The random numbers of PyTorch: the Mersenne Twister (Matsumoto and Nishimura 1998), seeded and read as it does. */

const SIZE = 624;

export class Random {
  private readonly state = new Uint32Array(SIZE);
  private next = SIZE;

  constructor(seed: number) {
    const { state } = this;
    state[0] = seed % 2 ** 32;
    for (let index = 1; index < SIZE; index++) {
      const previous = state[index - 1];
      state[index] = Math.imul(1812433253, previous ^ (previous >>> 30)) + index;
    }
  }

  /** Return 32 random bits. */
  drawBits(): number {
    if (this.next === SIZE) this.renew();
    let bits = this.state[this.next++];
    bits ^= bits >>> 11;
    bits ^= (bits << 7) & 0x9d2c5680;
    bits ^= (bits << 15) & 0xefc60000;
    return (bits ^ (bits >>> 18)) >>> 0;
  }

  /** Return a number from 0 to below 1. */
  draw(): number {
    const high = this.drawBits() & 0x1fffff;
    return (high * 2 ** 32 + this.drawBits()) / 2 ** 53;
  }

  private renew(): void {
    const { state } = this;
    for (let index = 0; index < SIZE; index++) {
      const bits = (state[index] & 0x80000000) | (state[(index + 1) % SIZE] & 0x7fffffff);
      state[index] = state[(index + 397) % SIZE] ^ (bits >>> 1) ^ (bits & 1 ? 0x9908b0df : 0);
    }
    this.next = 0;
  }
}
