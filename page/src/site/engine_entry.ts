/** A script of its own: the engine, which the first screen loads together with the model. */

import * as engine from "../engine";
import { decodeBase64 } from "../wire/gzip";
import { unpackModel } from "../wire/model_pack";

async function openPack(pack: string): Promise<engine.EngineModel> {
  return engine.openModel((await unpackModel(decodeBase64(pack))).files);
}

(globalThis as any).jumokLive = { ...(globalThis as any).jumokLive, engine, openPack };
