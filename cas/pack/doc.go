// Package pack encodes and decodes pack files: many chunks, each a self-describing record.
package pack
