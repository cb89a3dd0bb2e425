package report

import "errors"

var (
	// ErrVersion: the JSON is of another version than this package reads.
	ErrVersion = errors.New("unknown version of the benchmark report")
	// ErrWorkloads: the two reports measured different workloads.
	ErrWorkloads = errors.New("the reports measured different workloads")
)
