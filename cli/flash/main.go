// Command flash runs virtual machines whose every command is an undo point.
package main

func main() {}
