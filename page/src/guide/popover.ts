/** Panels that open beside a button, above everything else: Escape or a click elsewhere closes them. */

import { type Signal, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

const GAP = 4; // pixels between the button and the panel, and between the panel and the edge of the window

export interface PopoverPanel {
  button: RefObject<HTMLButtonElement | null>;
  panel: RefObject<HTMLDivElement | null>;
  isOpen: Signal<boolean>;
  close(): void;
}

export function usePopover(): PopoverPanel {
  const button = useRef<HTMLButtonElement>(null);
  const panel = useRef<HTMLDivElement>(null);
  const isOpen = useSignal(false);
  useEffect(() => {
    const element = panel.current!;
    button.current!.popoverTargetElement = element; // the browser opens and closes it; an id would not reach into a shadow root
    const follow = (event: Event) => (isOpen.value = (event as ToggleEvent).newState === "open");
    element.addEventListener("toggle", follow);
    return () => element.removeEventListener("toggle", follow);
  }, []);
  useEffect(() => {
    if (!isOpen.value) return;
    place(panel.current!, button.current!);
    panel.current!.focus();
  }, [isOpen.value]);
  return { button, panel, isOpen, close: () => panel.current!.hidePopover() };
}

/** Put a panel below its button, or above it where there is more room. */
function place(panel: HTMLElement, button: HTMLElement): void {
  const { left, top, bottom } = button.getBoundingClientRect();
  panel.style.maxHeight = "";
  const { width, height } = panel.getBoundingClientRect();
  const below = innerHeight - bottom - 2 * GAP;
  const isBelow = height <= below || below >= top;
  panel.style.maxHeight = `${Math.max(120, isBelow ? below : top - 2 * GAP)}px`;
  panel.style.left = `${Math.max(GAP, Math.min(left, innerWidth - width - GAP))}px`;
  panel.style.top = isBelow ? `${bottom + GAP}px` : `${Math.max(GAP, top - GAP - Math.min(height, top - 2 * GAP))}px`;
}
