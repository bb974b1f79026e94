"""One GPU seen for some minutes: trainings by plain PyTorch, predicted before they are measured.

models      the networks, as anybody writes them in PyTorch
trainings   which of them train how: the one table that all else is made of
measure     runs the trainings and writes a line for each as it ends
predict     what the oracle says of each, from the very modules that run
"""
