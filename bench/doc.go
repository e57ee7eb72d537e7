// Package bench holds the workloads flash is measured by.
package bench
