package deviceid

import "github.com/gpu-exporter/gpu-exporter/podmap/testnode"

const (
	GPUA, GPUB, GPUC, GPUD = testnode.GPUA, testnode.GPUB, testnode.GPUC, testnode.GPUD
	migD3, migD7, migD8    = testnode.MIGD3, testnode.MIGD7, testnode.MIGD8
	missing, mdev          = testnode.Missing, testnode.Mdev
)

var node = testnode.New
