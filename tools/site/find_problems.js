// What is wrong with the page that a reader sees: contrast below `least`, missing texts, sideways scrolling, silent cells.
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
  for (const button of document.querySelectorAll("button, input, a[href]")) {
    const name = button.textContent.trim() || button.ariaLabel || button.title || button.labels?.length || button.querySelector("img");
    if (!name) problems.add(`no name: ${button.outerHTML.slice(0, 80)}`);
  }
  const { scrollWidth, clientWidth } = document.documentElement;
  if (scrollWidth > clientWidth) problems.add(`scrolls sideways: ${scrollWidth} of ${clientWidth} pixels`);
  for (const cell of document.querySelectorAll("[data-cell]:not([data-ready])")) problems.add(`cell ${cell.dataset.cell} does not start`);
  return [...problems];
}
