// Package bench holds the workloads flash is measured by, each a Config and a Run; flash bench plays them on real
// guests and prints median and 99th percentile, with units, beside the same operation done by plain QEMU in the same
// run (savevm and loadvm on qcow2) and with the facts of the machine.
//
// Terms: a figure is one measured quantity; a baseline is what plain QEMU needs for the same. Figures are reported,
// never asserted: a slow machine is no failure.
package bench
