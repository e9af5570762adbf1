/** The button "Guide" of the header: the tour, and examples to choose from. */

import { useApp } from "../app";
import { type Example, listExamples } from "./examples";
import { usePopover } from "./popover";

export function GuideMenu() {
  const app = useApp();
  const words = app.words.value;
  const { button, panel, isOpen, close } = usePopover();
  const examples = listExamples(app);
  const run = app.run.current.value;
  const isHidden = app.desk.isShown.value || (!run && examples.length === 0);
  const open = (example: Example) => {
    close();
    void app.guide.showExample(example);
  };
  return (
    <>
      <button ref={button} type="button" data-action="guide" hidden={isHidden} aria-expanded={isOpen.value}>
        {words.guide.button}
      </button>
      <div ref={panel} class="jk-popover jk-guide-menu" popover="auto" role="dialog" aria-label={words.guide.button} tabIndex={-1}>
        {isOpen.value && (
          <>
            {run && (
              <button
                data-action="tour"
                onClick={() => {
                  close();
                  app.guide.startTour();
                }}
              >
                <b>{app.guide.left.value ? words.guide.continueTour : words.guide.startTour}</b>
                <small>{words.guide.tourHint}</small>
              </button>
            )}
            {examples.length > 0 && <h2>{words.guide.examplesTitle}</h2>}
            {examples.map((example) => (
              <button key={example.name} data-example={example.name} onClick={() => open(example)}>
                <b>{words.examples[example.name].title}</b>
                <small>
                  {example.model}: {example.text}
                </small>
              </button>
            ))}
            {examples.length === 0 && !app.can("run") && <p class="jk-hint">{words.guide.noExamples}</p>}
          </>
        )}
      </div>
    </>
  );
}
