/** A script of its own: the engine, which the first screen loads together with the model. */

import * as engine from "../engine";

(globalThis as any).jumokLive = { ...(globalThis as any).jumokLive, engine };
