package calls

// eventCalls wait for XIDs.
var eventCalls = []Call{
	{Function: "nvmlDeviceGetSupportedEventTypes", Values: value},
	{Function: "nvmlEventSetCreate", System: true, Methods: names("Interface.EventSetCreate")},
	{Function: "nvmlEventSetFree", Key: "-", Methods: names("EventSet.Free")},
	{Function: "nvmlDeviceRegisterEvents", Key: "RegisterEvents", Methods: names("Device.RegisterEvents")},
	{Function: "nvmlEventSetWait", Newest: 2, Waits: true, System: true, Methods: names("EventSet.Wait")},
}
