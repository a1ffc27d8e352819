"""What the controller knows: pods as they matter here (`pods`), agents and their counters
(`agents`, `totals`), gathered into one frozen snapshot (`snapshot`). May import: onggi_core, names,
pool, inject.outcome. Not here: I/O; reflectors and servers hand in what they hear."""
