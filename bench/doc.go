// Package bench holds the workloads flash is measured by, each a Config and a Run; flash bench plays them on real
// guests and prints median and 99th percentile, with units, beside the same operation done by plain QEMU in the same
// run (savevm and loadvm on qcow2) and with the facts of the machine.
//
// Terms: a figure is one measured quantity; a baseline is what plain QEMU needs for the same. Figures are reported,
// never asserted: a slow machine is no failure.
//
// Soak is the other way round: it measures nothing and wants everything to hold. Families of VMs, each acted on by one
// worker, go through random operations while their machines, and whole hosts, are killed.
//
// Terms: a life is a host from its opening to its end, in order or not; a witness is what is known of one VM: its guest's
// memory now and at each checkpoint; what an operation may have done that was cut short is pending, until it is made good:
// whatever its caller was told is there, whatever not is there whole or not at all.
package bench
