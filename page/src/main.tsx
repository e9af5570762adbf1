/** The entry of the bundle: it starts the page of the local server and of a saved file, and exports the notebook widget. */

import { render as renderView } from "preact";
import { App, AppProvider } from "./app";
import * as engine from "./engine";
import { readFragment } from "./link";
import { Frame } from "./views/frame";
import { Client } from "./wire/client";
import { openFile } from "./wire/file";
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
  el.classList.add("jumok-widget");
  el.style.setProperty("--jumok-height", `${model.get("height")}px`);
  const unmount = mount(el, new Client(carrier), false);
  return () => {
    unmount();
    detach();
  };
}

export default { render, engine };

const page = typeof document === "undefined" ? null : document.getElementById("jumok");
if (page?.dataset.carrier === "server") mount(page, new Client(openSocket(readFragment(location.hash).token)), true);
if (page?.dataset.carrier === "file") mount(page, new Client(openFile(document)), true);
