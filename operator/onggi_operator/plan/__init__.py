"""What to write, as pure functions of a snapshot: a pool's status (`status`): who is there
(`census`), what is found of it (`findings`) in which words (`conditions`), where its data lies
(`warm`); whether now is the time (`writes`), and who is told by an Event (`events`). May import:
observe, onggi_core. Not here: clocks and the API."""
