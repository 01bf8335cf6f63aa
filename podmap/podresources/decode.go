package podresources

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/gpu-exporter/gpu-exporter/internal/gpu"
	"github.com/gpu-exporter/gpu-exporter/podmap/wire"
)

// Plugins that offer a GPU's memory as devices, one ID per MiB, make responses of hundreds of thousands of IDs; as
// generated messages such a response takes 200 MB. Here its fields are visited in place, and only what is kept is copied.
//
// The field numbers are those of k8s.io/kubelet/pkg/apis/podresources; v1 and v1alpha1 share them.
const (
	fieldPods = 1 // ListPodResourcesResponse

	fieldPodName       = 1 // PodResources
	fieldPodNamespace  = 2
	fieldPodContainers = 3

	fieldContainerName    = 1 // ContainerResources
	fieldContainerDevices = 2
	fieldContainerClaims  = 5

	fieldDevicesResource = 1 // ContainerDevices
	fieldDevicesIDs      = 2

	fieldClaimName      = 2 // DynamicResource
	fieldClaimNamespace = 3
	fieldClaimDevices   = 4

	fieldClaimCDI    = 1 // ClaimResource
	fieldClaimDriver = 2
	fieldClaimPool   = 3
	fieldClaimDevice = 4
	fieldClaimShare  = 5

	fieldCDIName = 1 // CDIDevice

	fieldAllocatable = 1 // AllocatableResourcesResponse

	maxCDI = 16 // CDI names of one device of a claim
)

// name reads a name, which must not be longer than any is.
func name(value []byte) (string, error) {
	if len(value) > MaxIDLength {
		return "", fmt.Errorf("a name of %d bytes", len(value))
	}
	return wire.Text(value)
}

// Decode reads a List response into l.
func (l *List) Decode(response []byte) error {
	return wire.Fields(response, func(number protowire.Number, value []byte) error {
		if number != fieldPods {
			return nil
		}
		if l.Pods++; l.Pods > maxPods {
			return tooMany("pods", maxPods)
		}
		return l.pod(value)
	})
}

func (l *List) pod(message []byte) error {
	var pod gpu.PodName
	var names []string
	var containers []*Container
	err := wire.Fields(message, func(number protowire.Number, value []byte) (err error) {
		switch number {
		case fieldPodName:
			pod.Pod, err = name(value)
		case fieldPodNamespace:
			pod.Namespace, err = name(value)
		case fieldPodContainers:
			if l.shared.containers++; l.shared.containers > maxContainers {
				return tooMany("containers", maxContainers)
			}
			if len(containers) >= maxContainersPerPod {
				return tooMany("containers in one pod", maxContainersPerPod)
			}
			c := &Container{Devices: Devices{shared: l.shared}}
			var name string
			name, err = c.decode(value)
			names, containers = append(names, name), append(containers, c)
		}
		return err
	})
	// The names may follow what they name.
	for i, c := range containers {
		if err == nil {
			err = l.add(gpu.Container{Namespace: pod.Namespace, Pod: pod.Pod, Name: names[i]}, c)
		}
	}
	return err
}

func (c *Container) decode(message []byte) (containerName string, err error) {
	err = wire.Fields(message, func(number protowire.Number, value []byte) (err error) {
		switch number {
		case fieldContainerName:
			containerName, err = name(value)
		case fieldContainerDevices:
			err = c.devices(value)
		case fieldContainerClaims:
			err = c.claim(value)
		}
		return err
	})
	return containerName, err
}

// devices reads a ContainerDevices: usually one ID, in the same message as its resource. The resource may follow its IDs.
func (d *Devices) devices(message []byte) error {
	var resource string
	listed := 0
	err := wire.Fields(message, func(number protowire.Number, value []byte) (err error) {
		switch number {
		case fieldDevicesResource:
			resource, err = name(value)
		case fieldDevicesIDs:
			listed++
		}
		return err
	})
	if err != nil || listed == 0 {
		return err
	}
	if d.shared.ids += listed; d.shared.ids > maxIDs {
		return tooMany("device IDs", maxIDs)
	}
	ids, err := d.of(resource)
	if err != nil {
		return err
	}
	return wire.Fields(message, func(number protowire.Number, value []byte) error {
		if number != fieldDevicesIDs {
			return nil
		}
		id, err := wire.Text(value)
		if err == nil {
			ids.add(id, d.shared.Hash)
		}
		return err
	})
}

// claim reads a DynamicResource. The kubelet repeats in the CDI names of a device those of the driver's devices before
// it; what is left are its own.
func (c *Container) claim(message []byte) error {
	var claim [2]string
	listed := 0
	err := wire.Fields(message, func(number protowire.Number, value []byte) (err error) {
		switch number {
		case fieldClaimName:
			claim[1], err = wire.Text(value)
		case fieldClaimNamespace:
			claim[0], err = wire.Text(value)
		case fieldClaimDevices:
			listed++
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.shared.claims += listed; c.shared.claims > maxClaimDevices {
		return tooMany("devices of claims", maxClaimDevices)
	}
	before := map[[2]string]bool{} // by driver and CDI name
	return wire.Fields(message, func(number protowire.Number, value []byte) error {
		if number != fieldClaimDevices {
			return nil
		}
		device, err := claimDevice(value, before)
		device.Claim = claim
		c.Claims = append(c.Claims, device)
		return err
	})
}

// claimDevice reads a ClaimResource.
func claimDevice(message []byte, before map[[2]string]bool) (ClaimDevice, error) {
	var d ClaimDevice
	var cdi []string
	err := wire.Fields(message, func(number protowire.Number, value []byte) (err error) {
		switch number {
		case fieldClaimDriver:
			d.Driver, err = name(value)
		case fieldClaimPool:
			d.Pool, err = name(value)
		case fieldClaimDevice:
			d.Name, err = name(value)
		case fieldClaimShare:
			d.Part = true
		case fieldClaimCDI:
			cdi, err = cdiName(cdi, value)
		}
		return err
	})
	var own []string
	for _, name := range cdi {
		key := [2]string{d.Driver, name}
		if !before[key] && len(own) < maxCDI {
			own = append(own, name)
		}
		before[key] = true
	}
	d.CDI = strings.Join(own, ",")
	return d, err
}

// cdiName appends the name of a CDIDevice, unless it is too long to be one.
func cdiName(names []string, message []byte) ([]string, error) {
	name := ""
	err := wire.Fields(message, func(number protowire.Number, value []byte) (err error) {
		if number == fieldCDIName {
			name, err = wire.Text(value)
		}
		return err
	})
	if err != nil || len(name) > MaxIDLength {
		return names, err
	}
	return append(names, name), nil
}

// Decode reads a GetAllocatableResources response into d.
func (d *Devices) Decode(response []byte) error {
	return wire.Fields(response, func(number protowire.Number, value []byte) error {
		if number != fieldAllocatable {
			return nil
		}
		return d.devices(value)
	})
}
