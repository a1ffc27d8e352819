"""Which of several operators leads: what a Lease says and what one may do by it (`lease`), and the
rounds that keep or want it (`elector`). May import: kube. Not here: what is done while leading."""
