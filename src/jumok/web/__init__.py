"""The page: a session answers what the browser, a notebook or a saved file asks about a model's attention.

A session knows nothing of HTTP, and imports torch only when a model is asked for:

    Session.handle(fields, send)   answers hello, select and cancel at once; other asks wait in one of two queues
      -> Session._answer_run       the thread that runs models; a newer run of the same client stops an older one
      -> inspect_model             prepares the input; an edit reuses the clean pass of the last input
      -> Lens.run(edits, reuse)    blocks before the first edit are those of the clean pass

The other thread computes tiles and rows of finished runs (``answers``): it reads a capture, and never runs a model. A
text that the page sends is never opened as a file, and a model's name must be one of those that ``hello`` listed.
"""
