"""Stage 3: the cross-encoder, a transformer that reads query and candidate together.

reranker  ranks candidates by their scores, which are kept (scores)
pairs     the tokens of a pair: what is cut, markers
network   the transformer; backends run it
train     trains it on lists of candidates (data); the losses

published, sentence_transformers  read the cross-encoders of others; export writes ours for libraries
"""
