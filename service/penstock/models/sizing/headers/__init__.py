"""Headers of model files, read under limits and without the weights behind them."""
