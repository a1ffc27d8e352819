"""The endpoint that agents report to: who is speaking (`identity`), what they say (`endpoint`). May
import: kube, observe, onggi_core. Not here: what is made of the reports (plan)."""
