/** Links: what is shown, written into the fragment of the address and read from it. */

import type { Edit, Selection } from "./protocol";

/** What a link restores. */
export interface LinkState {
  model?: string;
  text?: string | null;
  edits?: Edit[];
  selection?: Selection;
  view?: string;
  show?: string;
  scale?: string;
  skip_first?: boolean;
  language?: string; // of the site that the link stands on
  question?: string; // instead of model and text, on a page that answers questions
  cut?: number[]; // indices of the passages that are cut
  attention?: boolean; // whether the attention is shown instead of the answer
}

export interface Fragment {
  token: string;
  state: LinkState;
}

export function readFragment(hash: string): Fragment {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  let state: LinkState = {};
  try {
    const parsed = JSON.parse(fields.get("state") ?? "{}");
    if (parsed && typeof parsed === "object" && !Array.isArray(parsed)) state = parsed;
  } catch {
    // a damaged link shows the start view
  }
  return { token: fields.get("token") ?? "", state };
}

export function writeFragment({ token, state }: Fragment): string {
  const fields = new URLSearchParams();
  if (token) fields.set("token", token);
  fields.set("state", JSON.stringify(state));
  return `#${fields}`;
}
