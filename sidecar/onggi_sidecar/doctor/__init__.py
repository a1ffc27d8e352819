"""`onggi doctor`: why a pod has no cache, or a slow one, in one command.

Lives here: what an agent says of itself, judged (`agent`), what a pod or a Deployment says, judged
(`manifest`), what it is said with (`finding`), the command (`command`). The judging is pure. May
import: onggi_core. Not here: how the figures are made (figures, http).
"""
