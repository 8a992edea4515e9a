"""FedAvg: clients train locally from the server's model, the server takes the weighted mean of their models.

    w^{t+1} = sum over k of beta_k w_k^{t+1},   beta_k = n_k / n (by data size) or 1 / K (equal weights)

with w_k^{t+1} what client k reaches from w^t by local steps on its own n_k samples. Gaussian posteriors are combined by
the aggregation rule instead.

McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (arXiv 1602.05629),
algorithm 1.
"""
