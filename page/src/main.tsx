/** The entry of the bundle: it starts the page of the local server and of a saved file, and exports the notebook widget and
 * live cells. The same script is the worker of a page that computes by itself. */

import { render as renderView } from "preact";
import { App, AppProvider } from "./app";
import * as engine from "./engine";
import { readFragment } from "./link";
import { type LiveOptions, openLiveClient, startWorker } from "./live_cell";
import { Frame } from "./views/frame";
import { Client } from "./wire/client";
import { openFile } from "./wire/file";
import { serveWorker } from "./wire/live_carrier";
import { openLiveFile } from "./wire/live_file";
import { openSocket } from "./wire/socket";
import { useWidgetModel, type WidgetModel } from "./wire/widget";

function mount(element: HTMLElement, client: Client, hasAddress: boolean): () => void {
  const app = new App(client, hasAddress);
  renderView(
    <AppProvider value={app}>
      <Frame />
    </AppProvider>,
    element,
  );
  void app.start();
  return () => {
    renderView(null, element);
    app.dispose();
  };
}

/** The part of an anywidget module that notebooks call. */
function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  const { carrier, detach } = useWidgetModel(model);
  el.style.setProperty("--jumok-height", `${model.get("height")}px`);
  const unmount = mountCell(el, new Client(carrier));
  return () => {
    unmount();
    detach();
  };
}

function mountCell(element: HTMLElement, client: Client): () => void {
  element.classList.add("jumok-widget");
  return mount(element, client, false);
}

/** Show a model that computes in the page; see live_cell.ts. */
function mountLive(element: HTMLElement, pack: string, options: LiveOptions): () => void {
  return mountCell(element, openLiveClient(pack, options));
}

const live = { mountLive, openLiveClient, engine };
export default { render, ...live };

const isInPage = typeof document !== "undefined";
const page = isInPage ? document.getElementById("jumok") : null;
if (page?.dataset.carrier === "server") mount(page, new Client(openSocket(readFragment(location.hash).token)), true);
if (page?.dataset.carrier === "file") mount(page, new Client(openFile(document)), true);
if (page?.dataset.carrier === "live") mount(page, new Client(openLiveFile(document, startWorker)), true);
if (isInPage && document.currentScript) Object.assign(globalThis, { jumok: live }); // not a module, but a plain script
if (!isInPage && "importScripts" in globalThis) serveWorker(globalThis as never);
