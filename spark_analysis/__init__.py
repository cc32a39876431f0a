"""The delivery-log schema and the Spark rules that judge a log; stands alone."""
