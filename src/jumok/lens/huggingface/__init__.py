"""Route the attentions of models from transformers through ``attend()`` while a lens is open.

``Lens(model).run(**inputs)``:

    Router.prepare   once for each class, config, dtype, set of inputs and range of lengths: runs the model without the
                     lens, then by each route, until all outputs agree on real tokens
    Router.route     one of three routes, open while the run executes:
      registry       Jumok's functions are selected in transformers' registries of attentions and masks
      own, eager     the model's own functions run, and the recognizer finds softmax(q k^T) v in their operations
    ForwardScope     the run: a listener of the context, so that other threads, callbacks and lenses are not affected
    SiteNames        names each call by its module; one that is executed again is "name#1", a further attention in the
                     same execution "name.call1"

``mask_functions.py`` passes the model a tensor that carries a mask expression; a model that calculates with it gets the
numbers. It splits tables of numbers into a mask and a bias: a number that is lower than the largest of
its row by 1,000 forbids the cell, since its weight is 0. What ``recognizer.py`` finds is verified like everything else,
so a wrong guess cannot give wrong maps. If no route agrees, ``run_with_maps`` of ``router.py`` reads the maps that the
model returns itself.
"""
