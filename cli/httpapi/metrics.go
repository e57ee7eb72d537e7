package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"flash/vmm/host"
)

// metricsWait bounds what one scrape waits for the host.
const metricsWait = 5 * time.Second

// What GET /metrics tells, in Prometheus' text format, beside the process's own: asked of the host at each scrape, so nothing
// is counted twice and nothing is remembered here.
var (
	metricVMs         = prometheus.NewDesc("flash_vms", "VMs by state.", []string{"state"}, nil)
	metricCheckpoints = prometheus.NewDesc("flash_vm_checkpoints", "Checkpoints of a VM.", []string{"flashvm"}, nil)
	metricPacks       = prometheus.NewDesc("flash_store_pack_bytes", "Size of all packs.", nil, nil)
	metricBudget      = prometheus.NewDesc("flash_store_budget_bytes", "What the packs may grow to; 0: bounded by the disk alone.", nil, nil)
	metricLag         = prometheus.NewDesc("flash_replication_lag_checkpoints", "Checkpoints that aren't in the remote yet.", []string{"flashvm", "remote"}, nil)
	metricLagSeconds  = prometheus.NewDesc("flash_replication_lag_seconds", "Age of the oldest checkpoint that isn't in the remote yet.", []string{"flashvm", "remote"}, nil)
	metricFailing     = prometheus.NewDesc("flash_replication_failing", "1 while the last attempt to push has failed.", []string{"flashvm", "remote"}, nil)
)

// hostMetrics asks a host.
type hostMetrics struct {
	api host.API
	now func() time.Time
}

func newMetrics(api host.API) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(hostMetrics{api, time.Now}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Describe says all there may be.
func (m hostMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricVMs, metricCheckpoints, metricPacks, metricBudget, metricLag, metricLagSeconds, metricFailing} {
		ch <- d
	}
}

// Collect asks the host. What it can't tell makes the scrape fail: a gap is seen, a zero isn't.
func (m hostMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsWait)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	vms, err := m.api.List(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(metricVMs, err)
		return
	}
	info, err := m.api.Info(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(metricPacks, err)
		return
	}
	gauge(metricPacks, float64(info.Usage.PackBytes))
	gauge(metricBudget, float64(info.Usage.Budget))
	states := map[string]int{host.StateRunning: 0, host.StatePaused: 0, host.StateStopped: 0, host.StateCrashed: 0}
	for _, vm := range vms {
		states[vm.State]++
		gauge(metricCheckpoints, float64(vm.Checkpoints), vm.ID)
		for _, l := range vm.Replication {
			age, failing := 0.0, 0.0
			if l.Since != nil {
				age = max(0, m.now().Sub(*l.Since).Seconds())
			}
			if l.Error != "" {
				failing = 1
			}
			gauge(metricLag, float64(l.Checkpoints), vm.ID, l.Remote)
			gauge(metricLagSeconds, age, vm.ID, l.Remote)
			gauge(metricFailing, failing, vm.ID, l.Remote)
		}
	}
	for state, n := range states {
		gauge(metricVMs, float64(n), state)
	}
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	s.metricsHandler.ServeHTTP(w, r)
	return nil
}
