// What is wrong with the page that a reader sees: contrast below `least`, missing texts, small controls, headings out of
// order, sideways scrolling, silent cells. The names of controls are checked in the accessibility tree (check_site.py).
(least) => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const problems = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    if (!walker.currentNode.data.trim() || !box.width || !box.height || element.closest("script, style, noscript")) continue;
    const text = read(style.color);
    let [background, isHidden] = [null, style.visibility !== "visible" || text[3] < 255];
    for (let parent = element; parent && !background; parent = parent.parentElement) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(parent);
      if (opacity < 1 || backgroundImage !== "none") isHidden = true;
      const colour = read(backgroundColor);
      if (colour[3] === 255) background = colour;
    }
    if (isHidden || !background) continue;
    const [low, high] = [luminance(text), luminance(background)].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < least)
      problems.add(`contrast ${contrast.toFixed(2)} of "${walker.currentNode.data.trim().slice(0, 40)}" (${element.className || element.tagName})`);
  }
  for (const image of document.images) {
    if (!image.hasAttribute("alt")) problems.add(`no alternative text: ${image.src}`);
    if (image.complete && !image.naturalWidth && image.getClientRects().length) problems.add(`not loaded: ${image.src}`);
  }
  // WCAG 2.5.8; links in a text are exempt
  for (const control of document.querySelectorAll("button, input, summary, nav a, header a, a.open, .attention td[title]")) {
    const boxes = [control, ...(control.labels ?? [])].map((element) => element.getBoundingClientRect());
    const [width, height] = ["width", "height"].map((side) => Math.max(...boxes.map((box) => box[side])));
    if (width && height && Math.min(width, height) < 24 && control.checkVisibility({ visibilityProperty: true, opacityProperty: true }))
      problems.add(`${width.toFixed()} x ${height.toFixed()} pixels are too small to tap: ${control.outerHTML.slice(0, 80)}`);
  }
  const levels = Array.from(document.querySelectorAll("main :is(h1, h2, h3, h4, h5, h6)"), (heading) => Number(heading.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1 || levels[0] !== 1) problems.add(`not one h1 at the beginning: ${levels}`);
  if (levels.some((level, index) => level > (levels[index - 1] ?? 0) + 1)) problems.add(`headings leave out a level: ${levels}`);
  const names = Array.from(document.querySelectorAll("[id]"), ({ id }) => id);
  for (const id of new Set(names.filter((id, index) => names.indexOf(id) !== index))) problems.add(`two elements have the id ${id}`);
  for (const attribute of ["aria-controls", "aria-labelledby", "aria-describedby", "for"])
    for (const element of document.querySelectorAll(`[${attribute}]`))
      if (!document.getElementById(element.getAttribute(attribute))) problems.add(`${attribute} names nothing: ${element.outerHTML.slice(0, 80)}`);
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) problems.add(`scrolls sideways: ${scrollWidth} of ${clientWidth} pixels`);
  for (const cell of document.querySelectorAll("[data-cell]:not([data-ready])")) problems.add(`cell ${cell.dataset.cell} does not start`);
  return [...problems];
}
