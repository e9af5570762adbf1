"""An empty page that has the engine, and the files of models."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from playwright.sync_api import Browser, Page, Route

ORIGIN = "http://engine.test"
PACKAGE = Path(str(files("jumok")))

#: sets `engine`, and functions that read a model from its folder
START = """async () => {
  const folders = new Map();
  globalThis.engine = (await import("/jumok.js")).default.engine;
  globalThis.readModelFiles = async (name) => {
    const read = async (file) => (await fetch(`/${name}/${file}`)).arrayBuffer();
    const readJson = async (file) => JSON.parse(new TextDecoder().decode(await read(file)));
    return {
      config: await readJson("config.json"),
      tokenizer: await readJson("tokenizer.json").catch(() => null),
      specials: await readJson("tokenizer_config.json").catch(() => undefined),
      weights: new Uint8Array(await read("model.safetensors")),
    };
  };
  globalThis.openModel = async (name) => {
    if (!folders.has(name)) folders.set(name, engine.openModel(await readModelFiles(name)));
    return folders.get(name);
  };
}"""


def open_engine_page(browser: Browser) -> Page:
    """Open the page; models of the package have their names there.

    Args:
        browser: The browser.
    """
    page = browser.new_page()
    page.route(f"{ORIGIN}/", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
    page.route(f"{ORIGIN}/jumok.js", lambda route: route.fulfill(path=PACKAGE / "web" / "static" / "jumok.js"))
    for name in ("tiny", "korean", "translator"):
        add_model(page, PACKAGE / "checkpoint" / name)
    page.goto(f"{ORIGIN}/")
    page.evaluate(START)
    return page


def add_model(page: Page, folder: Path) -> None:
    """Give the page the files of a model, under the name of its folder."""

    def send_file(route: Route) -> None:
        path = folder / route.request.url.rpartition("/")[2]
        if path.is_file():
            route.fulfill(path=path)
        else:
            route.fulfill(status=404)

    page.route(f"{ORIGIN}/{folder.name}/*", send_file)
