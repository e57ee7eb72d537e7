// Package httpapi is the host API over HTTP: server and client.
package httpapi
