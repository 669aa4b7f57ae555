package experiments

// ScalingOf judges replicas that were seen elsewhere by the same formulas.
var ScalingOf = scaling
